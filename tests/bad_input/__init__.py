"""What goes wrong in real studies, tried from outside: tables, models, outputs, datasets."""
