import CHutchHTTP
import CSystem

/// A fresh response that is in memory answers on the thread that resumes the task.
///
/// That thread holds the task meanwhile (`isHeld`), so that the session's thread does not begin or
/// end it. Either the task ends here, with all its callbacks and its completion, each once and
/// without a lock; or it is let go before the first callback, and the session's thread does all.
extension HTTPTask {
  /// No callback is the session's thread's to make, and nothing may have to be waited for.
  static func mayBeAnsweredHere(
    _ request: borrowing Request, _ configuration: borrowing Configuration
  ) -> Bool {
    guard let memory = configuration.cache, memory.hasMemory, request.port == nil,
      request.queue == nil, request.download == nil, request.body == nil,
      Letters.areSame(request.method.start, "GET")
    else { return false }
    if request.flags & UInt32(HUTCH_HTTP_ANY_THREAD) != 0 { return true }
    return request.complete == nil && request.onResponse == nil && request.onBody == nil
      && request.onProgress == nil && request.decoders.isEmpty
  }

  /// The caller is the thread that holds the task.
  func answerHere() {
    // A completion may release the host's last reference.
    let own = Unmanaged.passRetained(self)
    defer { own.release() }
    do throws(Failure) {
      let transfer = Transfer(of: self)
      guard let stored = try transfer.findFresh() else { return letGo() }
      var outcome = Outcome.done
      do throws(Failure) {
        outcome = try transfer.answer(stored, "hit") ?? .done
      } catch {
        outcome = .failed(error)
      }
      transfer.close(outcome)
      finish(outcome, transfer.metrics)
    } catch {
      return letGo()
    }
    session.conclude(self)
    // A session that has been ended waits for its last task.
    if session.lock.withLock({ session.end != nil }) { session.wake() }
  }
}
