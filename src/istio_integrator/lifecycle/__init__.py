"""The workload container: its Pebble layer, its answers and its notices on removal."""
