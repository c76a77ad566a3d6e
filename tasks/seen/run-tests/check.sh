says 'test_average_of_nothing'
only
