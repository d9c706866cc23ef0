"""What a view answers: columns that know what they hold, tables of them, charts, and their JSON."""
