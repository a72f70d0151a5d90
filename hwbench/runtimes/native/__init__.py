"""The C++ runner (``runner.cpp`` and its headers) and its build (``build``)."""
