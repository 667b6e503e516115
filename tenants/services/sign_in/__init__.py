"""How people sign in: passwords, second factors, devices, sessions."""
