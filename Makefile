.PHONY: start
