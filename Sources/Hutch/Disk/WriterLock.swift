import CSystem

/// The lock that says which openings a directory has, and which of them may write: locks of open
/// file descriptions on bytes of the file `hutch.lock` (LockFile). Unlike SQLite's own, these locks
/// are not dropped when the process closes another descriptor of the file, and the kernel gives
/// them up when the process dies.
///
///     byte         locked                        for
///     0  turn      for writing                   one transaction or checkpoint
///     1  presence  for reading                   from the first turn to the close
///     5  door      SHARED: for reading           from before the first turn to the close
///                  EXCLUSIVE: for writing
///
/// The door lets SHARED openings in together and an EXCLUSIVE one alone. An opening has it before
/// it is present, so it finds out at once whether it may come in, and waits for its first turn with
/// the door held.
///
/// Presence comes with the first turn: an opening that has the turn and finds no other presence is
/// alone, and stays so until the turn ends.
///
/// A fork makes another member. Turn and presence are this process's alone: the parent makes an
/// open file for the child, before the fork and within a turn, so that the child is present from
/// the first. The door's open file is inherited: an EXCLUSIVE door stays closed to others until the
/// last of parent and children has closed it. An EXCLUSIVE opening that has never forked keeps its
/// turn, which no other opening can want.
///
/// Used under the tier's writer mutex.
final class WriterLock {
  private enum Byte {
    static let turn: Int64 = 0
    static let presence: Int64 = 1
    static let door: Int64 = 5
  }

  /// Has turn and presence.
  private let file: Descriptor
  private let door: Descriptor
  private var hasTurn = false
  private var keepsTurn = false
  /// True once a wait for the turn has been in vain, until the next turn.
  private(set) var isStopped = false
  /// A child has the door too: it is closed, and not unlocked.
  private var isDoorInherited = false
  /// The count of forks (Process.forks) under which the locks were made.
  private var forks = Process.forks

  /// The child of a fork that cannot use the directory closes these numbers: an inherited
  /// descriptor is the same open file and would keep the locks beyond their owner.
  var descriptors: (file: Int32, door: Int32) { (file.number, door.number) }

  private init(_ file: consuming Descriptor, _ door: consuming Descriptor) {
    self.file = file
    self.door = door
  }

  /// Delegates: see Copying.
  convenience init(_ directory: Directory) throws(Failure) {
    self.init(try LockFile.open(directory), try LockFile.open(directory, 0))
  }

  /// The locks are given up, and not only closed: a process that has just been forked may not have
  /// closed its copies of the descriptors yet. A child that was not prepared only closes its
  /// copies: the locks are its parent's.
  deinit {
    if Process.isParents(forks) { return }
    _ = hutch_ofd_lock(file.number, Int16(F_UNLCK))
    if !isDoorInherited { _ = hutch_ofd_lock(door.number, Int16(F_UNLCK)) }
  }

  /// Passes the door, or fails at once; then waits for the first turn. The caller ends the turn.
  func acquire(_ sharing: Sharing) throws(Failure) {
    let type = sharing == .exclusive ? F_WRLCK : F_RDLCK
    guard hutch_ofd_lock_byte(door.number, Int16(type), Byte.door) == 0 else {
      let code = hutch_errno()
      if code == EAGAIN || code == EACCES {
        throw Failure(.busy, "another process has the directory open")
      }
      throw .system("cannot lock the directory", errno: code)
    }
    try beginTurn()
    guard hutch_ofd_lock_byte(file.number, Int16(F_RDLCK), Byte.presence) == 0 else {
      throw .system("cannot lock the directory")
    }
    keepsTurn = sharing == .exclusive
  }

  // MARK: turns

  /// How long a member waits for another one's turn after a wait in vain, in nanoseconds.
  private static let shortPatience: Int64 = 20_000_000

  /// Waits until no other member writes. The system has no wait for a lock that ends by itself.
  func beginTurn() throws(Failure) {
    var tries = 0
    var end = Deadline(at: 0)
    while !tryTurn() {
      try Directory.checkIsLocked()
      tries += 1
      // A turn is a transaction, shorter than the time that a sleeping thread takes to wake up.
      if tries <= 200 {
        sched_yield()
        continue
      }
      if tries == 201 {
        end = isStopped ? Deadline(after: WriterLock.shortPatience) : .forAnotherProcess
      } else if end.hasPassed {
        isStopped = true
        throw WriterLock.busy
      }
      usleep(tries < 2000 ? 100 : 1000)
    }
  }

  static var busy: Failure {
    Failure(.busy, "another process does not come to the end of its transaction")
  }

  /// Takes the turn if no other member has it. False: `errno` has the reason.
  func tryTurn() -> Bool {
    if !hasTurn {
      hasTurn = hutch_ofd_lock_byte(file.number, Int16(F_WRLCK), Byte.turn) == 0
      if hasTurn { isStopped = false }
    }
    return hasTurn
  }

  /// True if a transaction may begin.
  var mayWrite: Bool { hasTurn }

  func endTurn() {
    guard hasTurn, !keepsTurn else { return }
    hasTurn = false
    _ = hutch_ofd_lock_byte(file.number, Int16(F_UNLCK), Byte.turn)
  }

  /// True if no other member is present. The caller has the turn.
  var isAlone: Bool { keepsTurn || hutch_ofd_is_locked(file.number, Byte.presence) == 0 }

  /// True if this is the lock of that directory as it is now: a second open file description of
  /// the same process would find the door closed.
  func belongs(to directory: Directory) -> Bool {
    guard let own = Files.status(of: file.number),
      let there = LockFile.status(in: directory)
    else { return false }
    return own.identity == there.identity
  }

  // MARK: fork

  /// From here on there may be other members, whatever the sharing.
  func shareTurn() {
    keepsTurn = false
    endTurn()
  }

  /// The open file of a child that is about to be forked, with its presence. The caller has the
  /// turn, and closes the file.
  func makeForChild(_ directory: Directory) throws(Failure) -> Int32 {
    let made = try LockFile.open(directory, 0)
    guard belongs(to: directory),
      hutch_ofd_lock_byte(made.number, Int16(F_RDLCK), Byte.presence) == 0
    else { throw .system("cannot lock the directory") }
    isDoorInherited = true
    return made.take()
  }

  /// In the child: the open file that was made for it takes the place of the parent's.
  func takeOver(_ made: Int32) {
    _ = dup3(made, file.number, O_CLOEXEC)
    close(made)
    hasTurn = false
    forks = Process.forks
  }
}
