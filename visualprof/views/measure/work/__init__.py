"""Operations and bytes of operators, from the shapes of what they take."""
