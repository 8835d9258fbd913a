// swift-tools-version:6.2
// Debug is ordinary Swift, for tests and sanitizers; release is Embedded Swift, what ships.
// `swift build -c release` gives the library without soname and version script; CMake adds those.
import PackageDescription

let package = Package(
  name: "Hutch",
  products: [.library(name: "hutch", type: .dynamic, targets: ["Hutch"])],
  targets: [
    .systemLibrary(name: "CHutch", path: "include"),
    .systemLibrary(name: "CSystem"),
    .systemLibrary(
      name: "CSQLite", pkgConfig: "sqlite3", providers: [.apt(["libsqlite3-dev"])]),
    .target(
      name: "Hutch",
      dependencies: ["CHutch", "CSystem", "CSQLite"],
      swiftSettings: [
        .enableExperimentalFeature("Embedded", .when(configuration: .release)),
        .enableExperimentalFeature("RawLayout"),
        .unsafeFlags(["-wmo"], .when(configuration: .release)),
        .unsafeFlags(["-Wwarning", "EmbeddedRestrictions"], .when(configuration: .debug)),
      ],
      linkerSettings: [.linkedLibrary("m")]),
    .testTarget(name: "HutchTests", dependencies: ["Hutch", "CHutch", "CSystem", "CSQLite"]),
  ])
