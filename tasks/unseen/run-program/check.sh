says '1,?764'
only
