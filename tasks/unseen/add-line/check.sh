prints 'flask
pytest
requests' sort requirements.txt
only requirements.txt
