"""What is kept: tables, rows as values, uploaded and result files."""
