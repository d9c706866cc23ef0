"""Operations and bytes of operators, computed from the shapes of their inputs."""
