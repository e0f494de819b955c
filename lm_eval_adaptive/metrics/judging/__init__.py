"""What the metric ``judge`` is made of: settings, server, replies, cache, families of models."""
