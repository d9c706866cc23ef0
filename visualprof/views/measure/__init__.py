"""Pure arithmetic on columns, shared by the views."""
