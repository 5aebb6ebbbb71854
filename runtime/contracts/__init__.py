"""The protocols between the rooms of the runtime. No third-party import, no behaviour beyond data."""
