"""What leaves the portal: webhooks and chat."""
