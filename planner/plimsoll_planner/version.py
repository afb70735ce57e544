"""The one place that states the version; read by the build back end and the CLI."""

__version__ = "0.1.0"
