"""The portal's database backend."""
