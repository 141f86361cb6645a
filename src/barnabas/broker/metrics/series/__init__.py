"""The series of a scrape, by what they are about: each module reads one part of the broker."""
