"""The workload container: its Pebble layer, its answers, and what is said on removal."""
