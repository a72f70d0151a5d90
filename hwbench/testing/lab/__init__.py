"""A laboratory of devices without hardware."""
