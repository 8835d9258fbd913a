import CSystem

/// The lock that says who may write a directory: open-file-description locks on the file
/// `lock`. Unlike SQLite's own they are not dropped when somebody in the process closes
/// another descriptor of the file, and a process that dies gives them up.
///
///   sharing EXCLUSIVE  the whole file, for writing, from open to close
///   sharing SHARED     byte 1, for reading, from open to close: the presence. Byte 0, for
///                      writing, while it writes or checkpoints: the turn. Byte 4, for reading,
///                      while it waits for its first turn: the arrival
///
/// So an EXCLUSIVE opening and any other one stand in each other's way, and SHARED ones only
/// while they write. Presence comes with the first turn, not before: who has the turn and finds
/// nobody else present is alone, and stays so until the turn ends.
final class WriterLock {
  private let file: Descriptor
  private(set) var isShared = false
  private var hasTurn = false
  /// Another lock has this one's open file.
  private var isTaken = false
  /// See Process.forks.
  private let forks = Process.forks

  private static let turn: Int64 = 0
  private static let presence: Int64 = 1
  private static let arrival: Int64 = 4

  /// The child of a fork closes this number: an inherited descriptor is the same open file
  /// and would keep the lock beyond its parent.
  var descriptor: Int32 { file.number }

  init(_ directory: Directory) throws(Failure) {
    guard
      let number = Files.open(
        Files.path("lock"), at: directory.descriptor, O_RDWR | O_CREAT | O_NOFOLLOW)
    else { throw .system("cannot open the lock file", otherwise: .badDirectory) }
    file = Descriptor(owning: number)
  }

  /// A child that has just been forked may not have closed its copy of the descriptor yet: the
  /// lock is given up for that, too. The parent's is none of a child's business.
  deinit {
    if !isTaken && forks == Process.forks { _ = hutch_ofd_lock(file.number, Int16(F_UNLCK)) }
  }

  /// Takes the lock without waiting; a shared one with its first turn, for which it waits.
  func acquire(_ sharing: Sharing) throws(Failure) {
    isShared = sharing == .shared
    let code =
      isShared
      ? hutch_ofd_lock_byte(file.number, Int16(F_RDLCK), WriterLock.arrival, 0)
      : hutch_ofd_lock(file.number, Int16(F_WRLCK))
    guard code == 0 else {
      let code = hutch_errno()
      if code == EAGAIN || code == EACCES {
        throw Failure(.busy, "another process has the directory open")
      }
      throw .system("cannot lock the directory", errno: code)
    }
    guard isShared else { return }
    try beginTurn()
    // Nobody can stand in the way: an exclusive opening would want the arrival's byte, too.
    guard hutch_ofd_lock_byte(file.number, Int16(F_RDLCK), WriterLock.presence, 0) == 0 else {
      throw .system("cannot lock the directory")
    }
    _ = hutch_ofd_lock_byte(file.number, Int16(F_UNLCK), WriterLock.arrival, 0)
  }

  /// Waits until nobody else writes. Of an exclusive lock: at once.
  func beginTurn() throws(Failure) {
    guard isShared, !hasTurn else { return }
    // A turn is a transaction, shorter than the time that a sleeping thread takes to wake up.
    for _ in 0..<200 {
      if hutch_ofd_lock_byte(file.number, Int16(F_WRLCK), WriterLock.turn, 0) == 0 {
        hasTurn = true
        return
      }
      sched_yield()
    }
    while hutch_ofd_lock_byte(file.number, Int16(F_WRLCK), WriterLock.turn, 1) != 0 {
      if hutch_errno() != EINTR { throw .system("cannot lock the directory") }
    }
    hasTurn = true
  }

  /// Whether a transaction may begin.
  var mayWrite: Bool { !isShared || hasTurn }

  func endTurn() {
    guard hasTurn else { return }
    hasTurn = false
    _ = hutch_ofd_lock_byte(file.number, Int16(F_UNLCK), WriterLock.turn, 0)
  }

  /// Whether no other opening is there. Of who has the turn.
  var isAlone: Bool {
    !isShared || hutch_ofd_is_locked(file.number, WriterLock.presence) == 0
  }

  /// Whether this is the lock of that directory as it is now: an open-file-description lock
  /// stands in the way of the same process's second one.
  func belongs(to directory: Directory) -> Bool {
    guard let own = Files.status(of: file.number),
      let there = Files.status(Files.path("lock"), at: directory.descriptor)
    else { return false }
    return own.st_dev == there.st_dev && own.st_ino == there.st_ino
  }

  /// Takes another lock's place under the number that is known to others.
  func become(_ other: WriterLock) throws(Failure) {
    guard dup3(other.descriptor, descriptor, O_CLOEXEC) >= 0 else {
      throw .system("cannot lock the directory")
    }
    hasTurn = other.hasTurn
    other.isTaken = true
  }
}

/// The numbers of HUTCH_SHARING_*.
enum Sharing: UInt32 {
  case exclusive = 1
  case shared = 2
}
