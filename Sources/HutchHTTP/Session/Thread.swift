import CSystem

/// A thread of an object, which blocks all signals.
enum Thread {
  /// `body` gets a counted reference to the object, which it releases at its end.
  static func start(
    _ object: AnyObject, _ name: StaticString,
    _ body: @convention(c) (UnsafeMutableRawPointer?) -> UnsafeMutableRawPointer?
  ) throws(Failure) {
    var all = sigset_t()
    var before = sigset_t()
    sigfillset(&all)
    pthread_sigmask(SIG_SETMASK, &all, &before)
    var thread = pthread_t()
    let reference = Unmanaged.passRetained(object)
    let code = pthread_create(&thread, nil, body, reference.toOpaque())
    pthread_sigmask(SIG_SETMASK, &before, nil)
    guard code == 0 else {
      reference.release()
      throw .system("cannot make a thread", errno: code)
    }
    pthread_setname_np(thread, literal(name))
    pthread_detach(thread)
  }
}
