/// How a store is to be: what hutch_options says of the disk tier. A store uses what concerns it.
struct StorageOptions {
  var kind = StorageKind.unspecified
  /// Kind mixed: a value of more bytes has a file of its own.
  var inlineThreshold = 20_480
  /// The limits that were asked for; where a field is not in `given`, the library's default.
  var limits = TierLimits.defaultDisk
  /// Which fields of `limits` the caller has set.
  var given = LimitFields.all
  var durability = Durability.process
  var sharing = Sharing.shared
  /// Whether reads compare a value's bytes with its checksum.
  var checksChecksums = true
  /// Between values and what is stored of them.
  var codec: Codec?
  /// Which of the other options the caller has chosen: one that it has not is what the store has.
  var chosen = OptionFields.all
  var allowsNetworkDirectory = false
  /// A directory that is no cache's yet may have other files in it.
  var allowsNonempty = false
  /// Only a directory is opened that has a store already.
  var mustExist = false
  /// Maintenance comes about once a second, whatever the host does.
  var isMaintained = true
  /// A directory that cannot be used is no failure: the store is out of service until it can.
  var isOptional = false
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

/// How values are kept, which is settled when a directory is new: the numbers of
/// HUTCH_STORAGE_*. Which store a directory belongs to follows from it (`openStorage`).
enum StorageKind: UInt32 {
  /// As an option: what the directory has; mixed for a new one.
  case unspecified = 0
  /// A value above the inline threshold has a file of its own, others are in their row.
  case mixed = 1
  /// Every value is in its row.
  case sqlite = 2
  /// Every value has a file.
  case file = 3
}

/// What a completed put survives: the numbers of HUTCH_DURABILITY_*.
enum Durability: UInt32 {
  /// The end of the process. Nothing waits for the disk.
  case process = 1
  /// After a loss of power the store is whole, without what was written last.
  case power = 2
  /// A loss of power, too.
  case sync = 3
}

/// The numbers of HUTCH_SHARING_*.
enum Sharing: UInt32 {
  case exclusive = 1
  case shared = 2
}

/// Opens the store of a directory that nothing else of this process has open. One that is
/// optional may begin out of service, also in a directory that is not open.
typealias StorageOpener = (Directory, StorageOptions, Clock) throws(Failure) -> any Storage
