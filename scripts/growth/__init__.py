"""How a broker grows: `python -m scripts.growth PART ...` prints the figures of docs/scale.md."""
