"""Arrays: what people do with them, and their elements, booked as earlier ones end."""
