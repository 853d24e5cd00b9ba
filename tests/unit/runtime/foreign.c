// An image that needs another library.
int elsewhere(int);
int call_elsewhere(int x) {
  return elsewhere(x);
}
