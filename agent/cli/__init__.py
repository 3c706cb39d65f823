"""The command `rlm-agent`. Its modules import what they need inside their functions: `--help` and `status` stay light."""
