import CSystem

/// A thread that does the work of an object, and refers to the object until the work ends.
enum OwnedThread {
  typealias Main = @convention(c) (UnsafeMutableRawPointer?) -> UnsafeMutableRawPointer?

  /// The signals that a fault of a thread raises in that thread.
  private static var faults: InlineArray<6, Int32> {
    [SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS]
  }

  /// Makes a thread with a name of at most 15 bytes. `main` calls `run` for the owner's class. The
  /// thread blocks all signals but those of its own faults: the host's are for the host's threads.
  /// A callback of the host may fault, and a fault whose signal is blocked ends the process without
  /// the host's handler, which a language's runtime may need to go on. The caller joins or detaches
  /// the thread.
  static func make<Owner: AnyObject>(
    _ name: StaticString, of owner: Owner, _ main: Main
  ) throws(Failure) -> pthread_t {
    // A new thread inherits the mask.
    var mask = sigset_t()
    var before = sigset_t()
    sigfillset(&mask)
    let faults = self.faults
    for i in faults.indices { sigdelset(&mask, faults[i]) }
    pthread_sigmask(SIG_SETMASK, &mask, &before)
    var thread = pthread_t()
    let reference = Unmanaged.passRetained(owner)
    let code = pthread_create(&thread, nil, main, reference.toOpaque())
    pthread_sigmask(SIG_SETMASK, &before, nil)
    guard code == 0 else {
      reference.release()
      throw .system("cannot make a thread", errno: code)
    }
    pthread_setname_np(thread, Files.path(name))
    return thread
  }

  /// Called by the thread once: does the work of the owner behind `context`, and gives up the
  /// reference to it.
  static func run<Owner: AnyObject>(
    _ context: UnsafeMutableRawPointer?, _ type: Owner.Type, _ work: (Owner) -> Void
  ) -> UnsafeMutableRawPointer? {
    let reference = Unmanaged<Owner>.fromOpaque(context!)
    reference._withUnsafeGuaranteedRef(work)
    reference.release()
    return nil
  }
}
