"""Quotes: what a request could get, when and at what price, before it is booked."""
