"""The intermediate representation: nodes, text form, builder, analyses and interpreter."""
