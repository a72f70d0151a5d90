"""The C++ runner (``runner.cpp``) and its build (``build``)."""
