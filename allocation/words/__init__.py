"""What people read: the sentences of reasons, in one catalogue that can be translated."""
