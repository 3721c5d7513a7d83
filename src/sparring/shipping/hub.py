"""Uploads a shipped folder to a hub, or lists the files that an upload would send."""

from __future__ import annotations

from pathlib import Path

from sparring.contracts.errors import InfrastructureError, InvalidInput
from sparring.shipping.folder import verify_folder_digests


def would_upload(folder: Path, repository: str) -> list[str]:
    """Return one line for each file that an upload would send, and a hint to add --upload."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    lines = [
        f"would upload {path.relative_to(folder)} ({path.stat().st_size / 1e6:.1f} MB) to "
        f"{repository}"
        for path in files
    ]
    return [*lines, "nothing was uploaded: add --upload"]


def upload(folder: Path, repository: str) -> str:
    """Upload a folder and return the URL of the repository, which is created as private if it is
    missing. Raises InvalidInput if the repository is public, or if the files do not match the
    manifest."""
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HfHubHTTPError

    if problems := verify_folder_digests(folder):
        raise InvalidInput(f"{folder} is not uploaded: {'; '.join(problems[:3])}")
    api = HfApi()
    try:
        api.create_repo(repository, exist_ok=True, private=True)
        is_private = api.repo_info(repository).private
        if is_private:
            api.upload_folder(
                repo_id=repository, folder_path=folder, commit_message="Shipped by Sparring"
            )
    except (HfHubHTTPError, OSError, ValueError) as error:
        raise InfrastructureError(
            f"the upload to {repository} failed: {str(error).splitlines()[0]}. The folder {folder} "
            "is complete; log in with `hf auth login` and upload it, or ship again"
        ) from error
    if not is_private:
        raise InvalidInput(
            f"{repository} is public, so nothing was uploaded; make it private, name another "
            f"repository, or publish the folder yourself: hf upload {repository} {folder}"
        )
    return f"{api.endpoint}/{repository}"
