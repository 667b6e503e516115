"""What is running, reserved and movable while a cycle is solved."""
