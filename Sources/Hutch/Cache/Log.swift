import CSystem
import Synchronization

/// Lines for the host's logger, between where something happened, under whatever locks, and where
/// a call holds none.
///
/// The cache's own logger is told, or else the process's. Lines are made of what is rare:
/// nothing is logged where nothing is wrong, and without a logger nothing is kept. So that a
/// disk that fails every write does not flood the host, not more than `mostInASecond` are
/// kept; how many were left out is told with the next one.
final class Log {
  static let mostInASecond: UInt64 = 32

  let place = ListenerPlace()
  /// The path that was opened; ends with NUL. Set before the cache is shared.
  private var directory: UnsafeMutablePointer<CChar>?
  /// Protects what follows. Nothing is taken under it.
  private let lock = Lock()
  private var first: Event?
  private var last: Event?
  private var leftOut: UInt64 = 0
  private var second: Int64 = 0
  private var inSecond: UInt64 = 0

  deinit { free(directory) }

  func name(_ path: UnsafePointer<CChar>) { directory = strdup(path) }

  private func isWanted(_ level: LogLine.Level) -> Bool {
    place.kinds != 0
      ? place.kinds & level.rawValue != 0
      : Process.withLogger { ($0?.kinds ?? 0) & level.rawValue != 0 }
  }

  /// Moves the logger and the name of `old` here, in the child of a fork: see ListenerPlace.
  func takeOver(_ old: Log) {
    place.takeOver(old.place)
    directory = old.directory
  }

  /// Keeps a line. True: `tell` is owed.
  func post(_ line: LogLine, _ tiers: Tiers) -> Bool {
    guard isWanted(line.level) else { return false }
    let event = Event(line, tiers, directory)
    let now = Clock.read(CLOCK_MONOTONIC_COARSE) / 1_000_000_000
    lock.lock()
    defer { lock.unlock() }
    if now != second {
      second = now
      inSecond = 0
    }
    inSecond += 1
    guard inSecond <= Log.mostInASecond else {
      leftOut += 1
      return false
    }
    event.leftOut = leftOut
    leftOut = 0
    if let last { last.next = event } else { first = event }
    last = event
    return true
  }

  /// Tells what waits. No lock is held. Not from within a logger: its caller goes on with it.
  func tell(for owner: UnsafeMutableRawPointer) {
    let this = Unmanaged.passUnretained(self).toOpaque()
    if ThreadState.isWithinCallback(of: this) { return }
    while true {
      lock.lock()
      let event = first
      first = event?.next
      if first == nil { last = nil }
      lock.unlock()
      guard let event else { return }
      event.next = nil
      let listener = place.current ?? Process.withLogger { $0 }
      guard let listener, listener.kinds & event.line!.level.rawValue != 0 else { continue }
      ThreadState.within(this) { ThreadState.within(owner) { listener.call(event) } }
    }
  }
}

extension Process {
  /// The process's logger; it is not replaced during the call.
  static func withLogger<R>(_ body: (Listener?) -> R) -> R {
    withLoggerReference { pointer in
      body(pointer.map { Unmanaged<Listener>.fromOpaque($0).takeUnretainedValue() })
    }
  }

  /// Makes `new` the logger of caches without one of their own. The old one goes after its last
  /// call.
  static func setLogger(_ new: Listener?) {
    let old = withLoggerReference { pointer in
      let old = pointer
      pointer = new.map { Unmanaged.passRetained($0).toOpaque() }
      return old
    }
    if let old { Unmanaged<Listener>.fromOpaque(old).release() }
  }
}

extension Cache {
  /// To be told when the caller's locks are released: by `events.deliver`.
  func log(_ line: LogLine, _ tiers: Tiers) { events.log(line, tiers) }

  /// Reports a line of the store.
  func log(_ line: LogLine) { log(line, .disk) }

  /// Tells what is left, and lets listener and logger go. After the end of everything else, with
  /// no lock held: theirs are the host's last functions.
  func endListeners() {
    listen(nil)
    events.deliver()
    events.setLogger(nil)
  }
}
