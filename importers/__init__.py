"""Models of other frameworks as graphs, one package for each form."""
