"""Serves a detector over HTTP: a page, an API for images, and TensorFlow Serving's REST API."""
