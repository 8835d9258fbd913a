import CSystem

/// The lock that says who may write a directory: open-file-description locks on the file
/// `hutch.lock`. The file is the first thing that the library makes in a directory, so where it
/// is the directory is a cache's, whatever has become of the manifest. Unlike SQLite's own they are
/// not dropped when somebody in the process closes another descriptor of the file, and a process
/// that dies gives them up.
///
///   sharing EXCLUSIVE  the whole file, for writing, from open to close
///   sharing SHARED     byte 1, for reading, from open to close: the presence. Byte 0, for
///                      writing, while it writes or checkpoints: the turn. Byte 4, for reading,
///                      while it waits for its first turn: the arrival
///
/// So an EXCLUSIVE opening and any other one stand in each other's way, and SHARED ones only
/// while they write. Presence comes with the first turn, not before: who has the turn and finds
/// nobody else present is alone, and stays so until the turn ends.
///
/// A process and its forked children that have an EXCLUSIVE opening in common are a family. The
/// open file that all of them have inherited keeps others out until the last of them has closed
/// it: all of the file but bytes 2 and 3, for writing. Bytes 3 and 2 are presence and turn among
/// them. For these each has an open file of its own, as with SHARED: a child would have its
/// parent's turn. The parent makes it, before the fork and within a turn, so that the child is
/// present from the first.
final class WriterLock {
  private let file: Descriptor
  private(set) var isShared = false
  private var turn: Int64 = 0
  private var presence: Int64 = 1
  private var hasTurn = false
  /// Of a family; -1: none. Closed, never given up: it is everybody's.
  private(set) var common: Int32 = -1
  /// Another lock has this one's open file.
  private var isTaken = false
  /// See Process.forks.
  private var forks = Process.forks

  private static let arrival: Int64 = 4

  /// The child of a fork that cannot use the directory closes this number: an inherited
  /// descriptor is the same open file and would keep the lock beyond its parent.
  var descriptor: Int32 { file.number }

  private static var name: Files.Path { Files.path("hutch.lock") }

  init(_ directory: Directory) throws(Failure) {
    let number = try WriterLock.open(directory, O_CREAT)
    file = Descriptor(owning: number)
  }

  private static func open(_ directory: Directory, _ flags: Int32) throws(Failure) -> Int32 {
    guard
      let number = Files.openBeneath(
        name, at: directory.descriptor, O_RDWR | O_NONBLOCK | flags)
    else { throw .opening("cannot open the lock file") }
    let file = Descriptor(owning: number)
    guard let status = Files.status(of: number), hutch_is_regular(status.st_mode) != 0 else {
      throw Failure(.badDirectory, "hutch.lock in the directory is not a cache's")
    }
    return file.take()
  }

  /// Whether a directory has the file.
  static func isIn(_ directory: Directory) -> Bool {
    guard let status = Files.status(name, at: directory.descriptor) else { return false }
    return hutch_is_regular(status.st_mode) != 0
  }

  /// A child that has just been forked may not have closed its copy of the descriptor yet: the
  /// lock is given up for that, too. The parent's is none of a child's business.
  deinit {
    if !isTaken && forks == Process.forks { _ = hutch_ofd_lock(file.number, Int16(F_UNLCK)) }
    leaveFamily()
  }

  private func leaveFamily() {
    if common >= 0 { close(common) }
    common = -1
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
    guard hutch_ofd_lock_byte(file.number, Int16(F_RDLCK), presence, 0) == 0 else {
      throw .system("cannot lock the directory")
    }
    _ = hutch_ofd_lock_byte(file.number, Int16(F_UNLCK), WriterLock.arrival, 0)
  }

  /// Waits until nobody else writes. Of an exclusive lock: at once.
  func beginTurn() throws(Failure) {
    guard isShared, !hasTurn else { return }
    // A turn is a transaction, shorter than the time that a sleeping thread takes to wake up.
    for _ in 0..<200 {
      if hutch_ofd_lock_byte(file.number, Int16(F_WRLCK), turn, 0) == 0 {
        hasTurn = true
        return
      }
      sched_yield()
    }
    while hutch_ofd_lock_byte(file.number, Int16(F_WRLCK), turn, 1) != 0 {
      if hutch_errno() != EINTR { throw .system("cannot lock the directory") }
    }
    hasTurn = true
  }

  /// As `beginTurn`, if nobody has it.
  func tryTurn() -> Bool {
    guard isShared, !hasTurn else { return true }
    hasTurn = hutch_ofd_lock_byte(file.number, Int16(F_WRLCK), turn, 0) == 0
    return hasTurn
  }

  /// Whether a transaction may begin.
  var mayWrite: Bool { !isShared || hasTurn }

  func endTurn() {
    guard hasTurn else { return }
    hasTurn = false
    _ = hutch_ofd_lock_byte(file.number, Int16(F_UNLCK), turn, 0)
  }

  /// Whether no other opening is there. Of who has the turn.
  var isAlone: Bool {
    !isShared || hutch_ofd_is_locked(file.number, presence) == 0
  }

  /// Whether this is the lock of that directory as it is now: an open-file-description lock
  /// stands in the way of the same process's second one.
  func belongs(to directory: Directory) -> Bool {
    guard let own = Files.status(of: file.number),
      let there = Files.status(WriterLock.name, at: directory.descriptor)
    else { return false }
    return own.st_dev == there.st_dev && own.st_ino == there.st_ino
  }

  /// Takes another lock's place under the number that is known to others.
  func become(_ other: WriterLock) throws(Failure) {
    guard dup3(other.descriptor, descriptor, O_CLOEXEC) >= 0 else {
      throw .system("cannot lock the directory")
    }
    leaveFamily()
    isShared = other.isShared
    turn = other.turn
    presence = other.presence
    hasTurn = other.hasTurn
    other.isTaken = true
  }

  // MARK: fork

  /// Another open file of the same lock, with a presence of its own. The caller closes it.
  func another(_ directory: Directory) throws(Failure) -> Int32 {
    let number = try WriterLock.open(directory, 0)
    let opened = Descriptor(owning: number)
    guard belongs(to: directory),
      hutch_ofd_lock_byte(number, Int16(F_RDLCK), presence, 0) == 0
    else { throw .system("cannot lock the directory") }
    return opened.take()
  }

  /// Of an exclusive lock: it becomes that of a family, which has this process so far.
  func beginFamily(_ directory: Directory) throws(Failure) {
    guard !isShared else { return }
    let kept = hutch_duplicate(file.number)
    guard kept >= 0 else { throw .system("cannot lock the directory") }
    turn = 2
    presence = 3
    do throws(Failure) {
      guard hutch_ofd_lock_byte(kept, Int16(F_UNLCK), turn, 0) == 0,
        hutch_ofd_lock_byte(kept, Int16(F_UNLCK), presence, 0) == 0
      else { throw .system("cannot lock the directory") }
      let own = Descriptor(owning: try another(directory))
      guard dup3(own.number, descriptor, O_CLOEXEC) >= 0 else {
        throw .system("cannot lock the directory")
      }
    } catch {
      _ = hutch_ofd_lock(kept, Int16(F_WRLCK))
      close(kept)
      throw error
    }
    isShared = true
    common = kept
  }

  /// In the child: the open file that was made for it takes the place of the parent's.
  func takeOver(_ made: Int32) {
    _ = dup3(made, descriptor, O_CLOEXEC)
    close(made)
    hasTurn = false
    forks = Process.forks
  }
}
