"""What people are told of: in the page, and as they wish by e-mail and by webhook."""
