says '2\.31(\.0)?'
only
