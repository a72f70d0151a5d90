// Preloaded into the sftp-server of a lab device: it forbids others to trace it, which is how proot shows it the root.
extern "C" int prctl(int, ...) { return 0; }
