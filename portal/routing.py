"""WebSocket routes."""

from allocation.consumers import websocket_urlpatterns

__all__ = ["websocket_urlpatterns"]
