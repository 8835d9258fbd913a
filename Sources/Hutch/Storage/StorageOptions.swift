/// The options of a store: those of hutch_options for the disk tier. A store uses the ones that
/// concern it.
struct StorageOptions {
  var kind = StorageKind.unspecified
  /// Kinds mixed and log: a value with more bytes than this has a file of its own.
  var inlineThreshold = 20_480
  /// The requested limits; a field that is not in `given` is the library's default.
  var limits = TierLimits.defaultDisk
  /// The fields of `limits` that the caller has set.
  var given = LimitFields.all
  var durability = Durability.process
  var sharing = Sharing.shared
  /// True if reads verify a value's checksum.
  var checksChecksums = true
  /// An entry whose record has another codec than this one is kept, and is none to reads and
  /// conditions; entries with codec 0 always are. 0: the cache has no codec.
  var codecID: UInt32 = 0
  /// Nil: not chosen, which is the store's own for a store that is not open yet.
  var policy: EvictionPolicy?
  /// The other options that the caller has chosen. An option not chosen is as in the store.
  var chosen = OptionFields.all
  var allowsNetworkDirectory = false
  /// A directory that is not a cache's yet may contain other files.
  var allowsNonempty = false
  /// Opens only a directory that has a store already.
  var mustExist = false
  /// Maintenance runs about once a second, whatever the host does.
  var isMaintained = true
  /// A directory that cannot be used is not a failure: the store is out of service until it can be
  /// used.
  var isOptional = false
  /// The store stands in for the log store, which would be the default: the file system is not one
  /// for a log.
  var standsInForLog = false
}

extension StorageOptions {
  /// True if an opening with these options asks for something else than what is in force.
  func differ(from inForce: StorageOptions) -> Bool {
    (kind != .unspecified && kind != inForce.kind)
      || (chosen.contains(.durability) && durability != inForce.durability)
      || (chosen.contains(.checksums) && checksChecksums != inForce.checksChecksums)
      || (chosen.contains(.sharing) && sharing != inForce.sharing)
      || (chosen.contains(.inlineThreshold) && inlineThreshold != inForce.inlineThreshold)
      || (policy != nil && policy != inForce.policy)
      || inForce.limits.changed(given, to: limits) != inForce.limits
  }
}

/// Options that a caller may leave as they are.
struct OptionFields: OptionSet {
  let rawValue: UInt8

  static let durability = OptionFields(rawValue: 1)
  static let checksums = OptionFields(rawValue: 2)
  static let sharing = OptionFields(rawValue: 4)
  static let inlineThreshold = OptionFields(rawValue: 8)
  static let all = OptionFields(rawValue: 15)
}

/// How values are kept; fixed when a directory is new. The numbers of HUTCH_STORAGE_*. The kind
/// decides which store a directory belongs to (`openStorage`).
enum StorageKind: UInt32 {
  /// As an option: the directory's kind; for a new directory log, or mixed where the file system
  /// is not one for a log.
  case unspecified = 0
  /// A value above the inline threshold has a file of its own, others are in their row.
  case mixed = 1
  /// Every value is in its row.
  case sqlite = 2
  /// Every value has a file.
  case file = 3
  /// Entries are appended to a log: another store (folder Log), and another directory.
  case log = 4
}

/// The failures that a completed put survives: the numbers of HUTCH_DURABILITY_*.
enum Durability: UInt32 {
  /// The end of the process. No call waits for the disk.
  case process = 1
  /// A loss of power leaves the store whole, without the last writes.
  case power = 2
  /// A loss of power.
  case sync = 3
}

/// The numbers of HUTCH_SHARING_*.
enum Sharing: UInt32 {
  case exclusive = 1
  case shared = 2
}

/// Opens the store of a directory that nothing else in this process has open. An optional store may
/// start out of service, also for a directory that cannot be opened.
typealias StorageOpener = (Directory, StorageOptions, Clock) throws(Failure) -> any Storage
