"""From a program to a module: choosing a schedule, and compiling one program or several."""
