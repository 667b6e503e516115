"""Requests, their admission, price and changes by people."""
