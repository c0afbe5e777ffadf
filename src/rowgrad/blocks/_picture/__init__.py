"""What the picture of a page is made of: cards, the panels of results on them, and the ways of the wires."""
