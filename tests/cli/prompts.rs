//! `trunkline prompt`: a WAV file is converted here and uploaded.

use trunkline_testkit::DaemonSetup;

/// A second of 16 bits, stereo, at 44.1 kHz.
fn recording() -> Vec<u8> {
    let data = vec![0_u8; 44_100 * 4];
    let mut file = b"RIFF\0\0\0\0WAVEfmt \x10\0\0\0\x01\0\x02\0".to_vec();
    for value in [44_100_u32, 44_100 * 4] {
        file.extend(value.to_le_bytes());
    }
    file.extend(b"\x04\0\x10\0data");
    file.extend((data.len() as u32).to_le_bytes());
    file.extend(data);
    file
}

#[test]
fn a_recording_is_uploaded_listed_and_deleted() {
    let setup = DaemonSetup::new();
    let path = setup.folder.path().join("welcome.wav");
    std::fs::write(&path, recording()).expect("the folder can be written");
    let file = path.to_str().expect("a path");

    let run = |arguments: &[&str]| setup.run(&[arguments, &["--json"]].concat());
    let made = run(&["prompt", "create", "--name", "Welcome", "--file", file]);
    assert_eq!(made["duration_ms"], 1_000, "{made}");
    assert_eq!(run(&["prompt", "show", "Welcome"]), made);
    assert_eq!(run(&["prompt", "list"])[0], made);
    run(&["prompt", "delete", "Welcome", "--yes"]);

    std::fs::write(&path, b"ID3 and more").expect("the folder can be written");
    for (name, file, said) in [
        ("no WAV", file, "is no WAV file"),
        ("no file", "missing.wav", "can't be read"),
    ] {
        let output = setup.output(&["prompt", "create", "--name", "Welcome", "--file", file]);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(
            !output.status.success() && stderr.contains(said),
            "{name}: {stderr}"
        );
    }
}
