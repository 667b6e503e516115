"""Devices that have only files: FPGAs, NPUs and other accelerators without a driver that counts programs."""
