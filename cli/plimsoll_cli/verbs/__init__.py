"""One module for each verb of the `plimsoll` command."""
